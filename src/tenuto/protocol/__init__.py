"""The values and protocols that cross rooms. Imports nothing above itself; holds no behaviour."""
