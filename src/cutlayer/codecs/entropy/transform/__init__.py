"""The choice between elements and transform coefficients of a section (`ems:transform=auto`)."""
