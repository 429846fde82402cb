"""The pages; each module has one function `page`."""
