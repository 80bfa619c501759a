"""Parts that answers of several APIs share."""
