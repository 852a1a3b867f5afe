"""Scripts for the interpreters of other engines' environments. They import nothing of Tenuto's: it is not there."""
