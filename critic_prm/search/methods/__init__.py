"""Search methods: coroutine functions that return the finished solutions of a search tree."""
