"""One module per noun of the command line; each defines `app`. Imported only when its noun is used."""
