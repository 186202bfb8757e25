"""Text -> units -> split -> tokenizer -> shards -> sampler: from files to rows of token ids. `prepare` is the first five."""
