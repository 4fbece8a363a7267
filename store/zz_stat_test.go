package store
import ("testing";"time";"tierway/e2e/backends";"tierway/tenants";"context")
func TestZZStat(t *testing.T){
 s:=backends.Redis(t)
 limits,stop:=fleet(t,s.URL); defer stop()
 for name,c:=range map[string]*tenants.Caller{"heavy":heavy(),"rpm":who(tenants.Limits{RPM:1<<40},tenants.Limits{}),"rpm+conc+tpm":who(tenants.Limits{RPM:1<<40,TPM:1<<40,Concurrent:1<<40},tenants.Limits{})}{
 s.Do("CONFIG RESETSTAT")
 n:=3000
 a:=time.Now()
 for range n { l:=limits[0]; v,err:=func()(tenants.Verdict,error){ ch:=&tenants.Charge{Caller:c,At:time.Now(),Tokens:100}; g,v,err:=l.Take(context.Background(),ch); g.Settle(tenants.Used{Tokens:100});return v,err}(); if err!=nil||v.Refused!=""{t.Fatal(v,err)} }
 t.Log(name,time.Since(a)/time.Duration(n), "waiting", limits[0].waiting.Load())
 r,_:=limits[0].redis.client.Info(context.Background(),"commandstats").Result()
 t.Log(r)
 }
}
