"""What to change next, and what not to: rules that fire on measured figures, one cause a module."""
