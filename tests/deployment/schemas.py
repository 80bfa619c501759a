"""Schemas of the custom resources in the examples: the parts of their definitions that the examples use.

They follow the definitions of August 2026: InferencePool (kubernetes-sigs/gateway-api-inference-extension at 84436a9),
HTTPRoute (kubernetes-sigs/gateway-api at 4564255), PodMonitor (prometheus-operator at 6adcebc), ScaledObject
(kedacore/keda at 8b4f083) and EndpointPickerConfig (llm-d/llm-d-router at ebab687). Unknown fields are refused, as by
the API server's strict validation.
"""

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1}
NUMBER: Schema = {"type": "integer", "minimum": 0}
PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
DURATION: Schema = {"type": "string", "pattern": r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"}
LABELS: Schema = {"type": "object", "minProperties": 1, "additionalProperties": {"type": "string", "maxLength": 63}}


def fields(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """Return the schema of an object with these fields and no others."""
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **(optional or {})},
        "additionalProperties": False,
    }


def many(item: Schema, most: int = 16) -> Schema:
    """Return the schema of a list that is not empty."""
    return {"type": "array", "items": item, "minItems": 1, "maxItems": most}


SELECTOR = fields({"matchLabels": LABELS})
POOL = fields(
    {"selector": SELECTOR, "targetPorts": many(fields({"number": PORT}), 8)},
    {
        "appProtocol": {"enum": ["http", "kubernetes.io/h2c"]},
        "endpointPickerRef": fields(
            {"name": TEXT, "port": fields({"number": PORT})},
            {"group": {"type": "string"}, "kind": TEXT, "failureMode": {"enum": ["FailOpen", "FailClose"]}},
        ),
    },
)
ROUTE = fields(
    {
        "parentRefs": many(fields({"name": TEXT}, {"namespace": TEXT, "sectionName": TEXT})),
        "rules": many(
            fields(
                {"backendRefs": many(fields({"name": TEXT}, {"group": TEXT, "kind": TEXT, "port": PORT}))},
                {
                    "matches": many(
                        fields({"path": fields({"type": {"enum": ["Exact", "PathPrefix"]}, "value": TEXT})})
                    ),
                    "timeouts": fields({}, {"request": DURATION, "backendRequest": DURATION}),
                },
            )
        ),
    },
    {"hostnames": many(TEXT)},
)
POD_MONITOR = fields(
    {"selector": SELECTOR, "podMetricsEndpoints": many(fields({"port": TEXT}, {"path": TEXT, "interval": DURATION}))}
)
TRIGGER = fields(
    {
        "type": {"const": "prometheus"},
        "metadata": fields(
            {"serverAddress": TEXT, "query": TEXT, "threshold": {"type": "string", "pattern": r"^[0-9.]+$"}}
        ),
    },
    {"name": TEXT},
)
SCALED_OBJECT = fields(
    {"scaleTargetRef": fields({"name": TEXT}), "triggers": many(TRIGGER)},
    {
        "minReplicaCount": NUMBER,
        "maxReplicaCount": NUMBER,
        "pollingInterval": NUMBER,
        "fallback": fields({"failureThreshold": NUMBER, "replicas": NUMBER}),
        "advanced": fields({"horizontalPodAutoscalerConfig": fields({"behavior": {"type": "object"}})}),
    },
)
PICKER_PROFILE = fields({"name": TEXT, "plugins": many(fields({"pluginRef": TEXT}, {"weight": {"type": "number"}}))})


def resource(api_version: str, spec: Schema) -> Schema:
    """Return the schema of a resource with this `spec`."""
    metadata = fields({"name": TEXT}, {"namespace": TEXT, "labels": LABELS})
    return fields({"apiVersion": {"const": api_version}, "kind": TEXT, "metadata": metadata, "spec": spec})


SCHEMAS: Mapping[str, Schema] = {
    "InferencePool": resource("inference.networking.k8s.io/v1", POOL),
    "HTTPRoute": resource("gateway.networking.k8s.io/v1", ROUTE),
    "PodMonitor": resource("monitoring.coreos.com/v1", POD_MONITOR),
    "ScaledObject": resource("keda.sh/v1alpha1", SCALED_OBJECT),
    "EndpointPickerConfig": fields(
        {
            "apiVersion": {"const": "llm-d.ai/v1alpha1"},
            "kind": TEXT,
            "plugins": many(fields({"type": TEXT}, {"name": TEXT, "parameters": {"type": "object"}})),
            "schedulingProfiles": many(PICKER_PROFILE),
        }
    ),
}
"""Schemas by kind."""
