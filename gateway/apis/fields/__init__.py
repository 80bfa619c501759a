"""Parts that request bodies of several APIs share."""
