"""Send requests through workers on a Ray cluster.

The driver (the process that runs the command) alone opens the cache, reads replies, counts costs and writes labels. A worker
completes requests, or scores solutions, and holds nothing else: losing one loses only the requests it was working on.
"""
