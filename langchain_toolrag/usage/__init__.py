"""One search or call in -> one line in a day's file, and its request's vector beside it, out."""
