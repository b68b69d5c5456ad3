"""What real guests on lab hosts take, beside bare scripts."""
