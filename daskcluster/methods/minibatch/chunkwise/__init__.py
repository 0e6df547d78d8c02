"""Steps of a mini-batch, of many rows or of one."""
