"""Send requests and keep replies: cache, rate limiter, retries, budget, batches, Ray."""
