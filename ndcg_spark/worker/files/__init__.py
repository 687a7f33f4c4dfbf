"""Files that workers read themselves, of this machine and of object stores: which there are, and their rows."""
