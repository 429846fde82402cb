"""The browser pages: what a person sees and clicks. Holds no measuring and no arithmetic."""
