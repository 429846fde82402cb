"""The decoder, its configuration, and how weights and tokenizer come from disk."""
