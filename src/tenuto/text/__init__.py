"""Between text and tokens: tokenizer, chat templates, detokenizer, tool-call format, grammars."""
