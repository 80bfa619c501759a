"""Guards between the HTTP server and the routes: request scope, deadlines, origins, event streams, error statuses."""
