"""Messages between fuga's processes: their format, and the filter of foreign messages."""
