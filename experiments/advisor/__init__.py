"""What to change next, and what not to: evidence, causes that match it, and the changes that they propose."""
