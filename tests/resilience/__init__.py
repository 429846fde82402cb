"""What goes wrong around the product, and what is left then. The table of all of it is in test_table.py."""
