"""Pictures, sound and arrays in files of their own, named by the cells of a table.

`columns` says which columns of a table hold paths, and `reading` makes a modality of one. There is a decoder for each
family of files (`pictures`, `sound`, `array_files`), with settings in `settings`. `decoding` runs it over many files,
in threads, and keeps the result in the cache on disk, where `content_keys` finds files that have not changed.
"""
