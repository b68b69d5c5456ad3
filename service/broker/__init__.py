"""Messages between fuga's processes: their form, and how foreign ones are dropped."""
