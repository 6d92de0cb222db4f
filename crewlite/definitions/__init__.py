"""What definitions share, and the functions, fields and keywords that users give them."""
