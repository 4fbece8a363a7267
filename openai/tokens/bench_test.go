package tokens

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// BenchmarkCount measures an exact count of ordinary text, and of the slowest text that is counted.
func BenchmarkCount(b *testing.B) {
	texts := map[string]string{
		"English": "The quick brown fox jumps over the lazy dog, and whoever watches it doesn't say a word. Licences are " +
			"granted without warranty of any kind, express or implied, including but not limited to those of " +
			"merchantability.\n\n",
		"code": "func (s *server) route(ctx context.Context, req *Request) (*Worker, error) {\n\tif req.Tier == nil " +
			"{\n\t\treturn nil, fmt.Errorf(\"routing %s: %w\", req.ID, errNoTier)\n\t}\n\treturn " +
			"s.pools[req.Tier.Name].pick(ctx, req.Tokens*2+1)\n}\n\n",
		"Chinese": "网关接收请求，根据提示的长度和关键词选择模型的层级，然后把请求发送到拥有最热缓存的节点。如果没有可用的节点，请求就在队列里等待，直到有空闲的位置。",
		"worst":   strings.Repeat("a", maxRun) + "1",
	}
	for _, p := range vocabularies() {
		for _, name := range []string{"English", "code", "Chinese", "worst"} {
			for _, size := range []int{4 << 10, 16 << 10, 64 << 10} {
				text := bytes.ToValidUTF8(bytes.Repeat([]byte(texts[name]), size/len(texts[name])+1)[:size], nil)
				b.Run(fmt.Sprintf("%s/%s/%dKB", p.name, name, size>>10), func(b *testing.B) {
					b.SetBytes(int64(len(text)))
					b.ReportAllocs()
					for b.Loop() {
						if n, ok := p.own.Count(text); n == 0 || !ok {
							b.Fatal("no tokens")
						}
					}
				})
			}
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, name := range []string{Cl100kBase, O200kBase} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Load(name); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
