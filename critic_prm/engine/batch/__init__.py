"""Send requests through a provider's batch API or a file, and import the replies into the cache.

Labelling is replayed over the same input until the cache answers every request; critics do not know about batches.
In each pass, `builder.BatchBuilder` takes the place of the client's online requests (`Client.elsewhere`): it puts a request
that the cache cannot answer into a batch and raises ReplyPending, which ends that trajectory's turn in this pass.
`manager.BatchManager` sends full batches and imports the results of ended ones into the cache that online runs use, too, and
`ledger.Ledger` records every step in the cache file, so a crash loses no batch and creates none twice.
"""
