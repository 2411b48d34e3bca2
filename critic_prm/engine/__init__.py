"""Send requests and store replies: cache, rate limiter, retries, budget, batches, Ray."""
