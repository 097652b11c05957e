"""One search or call in -> one line in a day's file out."""
