"""What real guests on lab hosts take, against bare scripts."""
