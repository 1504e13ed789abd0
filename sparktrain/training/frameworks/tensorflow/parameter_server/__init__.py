"""An own parameter server: variables sharded over servers, updates applied there, members that come and go."""
