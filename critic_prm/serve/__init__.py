"""Any critic behind HTTP: requests in, scores out; many requests become one batch, and none can bring the server down."""
