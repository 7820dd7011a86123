"""FirnKV in the place of Mooncake: only its store."""
