"""Registry of served models, and execution of requests on them."""
