"""Routes: which attention and sampling path SGLang's own dispatch code takes on a described target."""
