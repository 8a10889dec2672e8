"""Which schedule is fastest on the GPU in hand: candidates, their measurement, and a file of results."""
