"""Send requests through a provider's batch API or a file, and import the replies into the cache.

`BatchBuilder` is a miss handler: set on the client, it collects the requests that the cache cannot answer instead of sending
them one by one. `BatchManager` polls the batches and imports their results into the same cache that online runs use.
Labelling is replayed over the same input until the cache answers every request.
"""
