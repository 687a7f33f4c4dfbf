"""Workers that learn position bias from clicks."""
