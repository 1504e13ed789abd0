"""A wing: what people look at, from reports to live pages."""
