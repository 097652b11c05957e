"""Files and modules in -> tools out."""
