// Package suspicion finds out whether the connections to an address lead to a server that is not
// the one behind that address any more. [State] decides when a new connection is made to ask, and
// when the others are replaced. A [Question] is what that connection is asked, and [Served] says what
// the answer means.
//
// Who the server is, is not asked: it does not matter. Another server that refuses, too, is no
// better, and the same one may serve new connections only, as a proxy does whose own connections lead
// elsewhere.
package suspicion
