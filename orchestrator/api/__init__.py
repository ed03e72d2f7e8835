"""REST under /v1: routes that translate between HTTP and the rooms below. They decide nothing but who may ask."""
