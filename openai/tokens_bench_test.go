package openai

import (
	"bytes"
	"testing"
)

func BenchmarkCount(b *testing.B) {
	english := []byte("The quick brown fox jumps over the lazy dog, and whoever watches it doesn't say a word. Licences are granted without warranty of any kind, express or implied, including but not limited to those of merchantability.\n\n")
	code := []byte("func (s *server) route(ctx context.Context, req *Request) (*Worker, error) {\n\tif req.Tier == nil {\n\t\treturn nil, fmt.Errorf(\"routing %s: %w\", req.ID, errNoTier)\n\t}\n\treturn s.pools[req.Tier.Name].pick(ctx, req.Tokens*2+1)\n}\n\n")
	chinese := []byte("网关接收请求，根据提示的长度和关键词选择模型的层级，然后把请求发送到拥有最热缓存的节点。如果没有可用的节点，请求就在队列里等待，直到有空闲的位置。")
	for _, p := range tokenPairs() {
		for _, c := range []struct {
			name string
			text []byte
			size int
		}{
			{"English 1KB", english, 1 << 10}, {"English 8KB", english, 8 << 10}, {"English 64KB", english, 64 << 10},
			{"code 8KB", code, 8 << 10}, {"Chinese 8KB", chinese, 8 << 10}, {"Chinese 64KB", chinese, 64 << 10}, {"a 64KB", []byte("a"), 64 << 10},
		} {
			text := bytes.Repeat(c.text, c.size/len(c.text)+1)[:c.size]
			if c.name[0] == 'C' { // cut between characters, not within one
				text = bytes.ToValidUTF8(text, nil)
			}
			b.Run(p.name+"/"+c.name, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				b.ReportAllocs()
				for b.Loop() {
					if p.own.Count(text) == 0 {
						b.Fatal("no tokens")
					}
				}
			})
		}
	}
}

func BenchmarkLoadVocabulary(b *testing.B) {
	for _, name := range []string{Cl100kBase, O200kBase} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := LoadVocabulary(name); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
