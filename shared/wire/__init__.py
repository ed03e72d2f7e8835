"""Wire models: what goes over a link, field by field. They carry no behaviour; parsing is not believing."""
