"""Workers for series of nights: flags, and their link to clicks."""
