"""Send requests through workers on a Ray cluster.

Only the driver (the process that runs the command) opens the cache, parses replies, counts costs and writes labels. A worker
completes requests or scores solutions and keeps no other state, so losing one loses only the requests it was working on.
"""
