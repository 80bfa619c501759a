"""OpenAPI description of the HTTP interface, generated from the endpoints and the types of their bodies."""
