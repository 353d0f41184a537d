//! What the fuzz targets do with their input. Here so that a plain test can replay their corpora; no part of the API.
