"""Re-ranking: documents in the order of their relevance, in the shapes of Jina, Cohere and TEI."""
