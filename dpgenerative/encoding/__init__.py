"""From tables to cells and back."""
