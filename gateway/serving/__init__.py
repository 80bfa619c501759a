"""The served models, and how a request runs on one."""
