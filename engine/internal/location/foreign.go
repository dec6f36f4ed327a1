package location

import (
	"slices"
	"strings"
)

// What the settings of other clients mean here. docs/configuration.md has the table for readers.

// harmless are settings of other clients without which a lock is the same: pools, protocols,
// retries and time-outs of single reads, and what is only for reading from replicas. They are
// spelled as by plainName.
var harmless = strings.Fields(`
	protocol resp3 unstableresp3 encoding encodingerrors decoderesponses
	libname libver libversion libraryname libraryversion identitysuffix disableidentity disableindentity
	poolsize poolfifo pooltimeout minidleconns maxidleconns maxactiveconns maxconnections maxconnage
	connmaxidletime connmaxlifetime idletimeout idlecheckfrequency idleconnectiontimeout healthcheckinterval
	minidle maxidle maxtotal maxwait blockingpoolsize pipelinemultiplex maxconcurrentdials
	maxretries minretrybackoff maxretrybackoff retryontimeout retryonerror retryattempts maxretriesperrequest
	connectretry reconnectattempts dialerretries dialerretrytimeout
	timeout readtimeout writetimeout sockettimeout socketconnecttimeout connecttimeout connectiontimeout
	synctimeout asynctimeout blockingtimeout contexttimeoutenabled failingtimeoutseconds
	socketkeepalive socketkeepaliveoptions socketreadsize keepalive tcpkeepalive tcpnodelay nodelay family
	readbuffersize writebuffersize maxflushdelay alwayspipelining
	readonly routebylatency routerandomly readfrom replicaonly maxredirects maxredirections
	pool clientcache persistent weight retryinterval visibilitytimeout usedisconnectedreplicas allowusernameinuri
	enablereadycheck enableofflinequeue lazyconnect abortconnect allowadmin configcheckseconds pinginterval
`)

// mastersNames are names of other clients for the path of redis+sentinel://.
var mastersNames = []string{"master", "mastername", "masterset", "mastergroup", "servicename", "sentinelmasterid", "sentinelmaster", "sentinelmastername", "sentinelservice", "sentinelname"}

// foreign returns what to write instead of a setting of another client, "" if it makes no
// difference; theirs is false if no client is known for it.
func (l *Location) foreign(name, value string) (instead string, theirs bool) {
	is := func(names ...string) bool { return slices.Contains(names, name) }
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(name, word) })
	}
	on, isSwitch := onOrOff(value)
	switch {
	case slices.Contains(harmless, name):
		return "", true
	case is("password", "passwd", "pass", "auth", "authpassword", "user", "username", "authusername"):
		return "write redis://USER:PASSWORD@HOST", true
	case is(mastersNames...):
		return "write redis+sentinel://HOST:26379,HOST:26379/MASTER", true
	case is("addr", "addrs", "nodes", "hosts", "sentinels"):
		return "write all addresses as redis+cluster://HOST:PORT,HOST:PORT or redis+sentinel://HOST:26379,HOST:26379/MASTER", true
	case is("cluster", "clustermode", "clusterenabled", "isclustermode"):
		return unless(isSwitch && (on == "on") == (l.Topology == "cluster"), "write redis+cluster://HOST:PORT,HOST:PORT"), true
	case is("prefix", "namespace", "instancename"), has("keyprefix"):
		return "names are mapped by Config.NameMapper", true
	case has("insecure", "allowinvalid", "trustserver"), has("verif") && has("skip", "disable", "ignore", "without", "noverif"):
		return unless(on == "off", "the flag is --insecure-skip-verify (Config.TLS.InsecureSkipVerify)"), true
	case has("verif", "certreqs", "checkhostname", "rejectunauthorized"):
		strict := on == "on" || slices.Contains([]string{"required", "certrequired", "full", "peer"}, plainName(value))
		return unless(strict, "the flag is --insecure-skip-verify (Config.TLS.InsecureSkipVerify)"), true
	case has("servername", "sslhost", "tlshost"):
		return "write tls_server_name", true
	case has("cacert", "cafile", "capath", "cadata", "rootca", "truststore") || is("ca", "sslca", "tlsca"):
		return "the flag is --cacert (Config.TLS.RootCAs)", true
	case has("keyfile", "privatekey", "clientkey", "keystore") || is("key", "sslkey", "tlskey"):
		return "the flag is --key (Config.TLS.Certificates)", true
	case has("certfile", "clientcert") || is("cert", "sslcert", "tlscert"):
		return "the flag is --cert (Config.TLS.Certificates)", true
	case is("tls", "ssl", "usetls", "usessl", "tlsenabled", "sslenabled", "starttls"):
		return unless(isSwitch && (on == "on") == l.TLS, "TLS is what rediss:// says, redis:// is none"), true
	case strings.HasPrefix(name, "ssl"), strings.HasPrefix(name, "tls"):
		return "it is a field of Config.TLS", true
	}
	return "", false
}

// unless is what to write, if a setting says something else than the URL does.
func unless(same bool, instead string) string {
	if same {
		return ""
	}
	return instead
}
